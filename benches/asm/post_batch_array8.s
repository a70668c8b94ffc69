    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov rbx,rcx
    mov r11,rdx
    mov r15,rsi
    mov ecx,DWORD PTR [rdi+0x58]
    mov ebp,DWORD PTR [rdi+0x5c]
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 0
    lea eax,[rcx-0x1]
    mov DWORD PTR [rdi+0x60],eax
0:
    mov r12,QWORD PTR [r11]
    mov r14,0xffffffffffffff10
    movabs r13,0x800000003
    mov edx,ebp
    mov QWORD PTR [rsp+0x10],rcx
    mov esi,ecx
    mov rax,QWORD PTR [r15+r14*1+0xf0]
    mov r10d,DWORD PTR [r15+r14*1+0xf8]
    cmp QWORD PTR [rdi+0x70],0x8
    jb 3
1:
    cmp DWORD PTR [rdi+0x60],esi
    js 3
    mov ecx,DWORD PTR [rdi+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rdi]
    bswap rax
    bswap r10d
    mov QWORD PTR [rcx+0x10],rax
    mov QWORD PTR [rcx+0x18],r10
    mov DWORD PTR [rcx+0x20],0x8000080
    mov QWORD PTR [rcx+0x24],r12
    movzx eax,si
    shl rax,0x28
    or rax,r13
    lea r8,[rax+0x7fffffe]
    add rax,QWORD PTR [rdi+0x50]
    bswap rax
    mov QWORD PTR [rcx],rax
    mov QWORD PTR [rcx+0x8],0x8000000
    mov rax,QWORD PTR [rdi+0x8]
    mov r9d,DWORD PTR [rdi+0x64]
    and r9d,edx
    shl r9,0x4
    mov QWORD PTR [rax+r9*1],rbx
    mov QWORD PTR [rax+r9*1+0x8],r8
    inc esi
    inc edx
    test r14,r14
    je 4
2:
    add r14,0x10
    inc rbx
    mov rax,QWORD PTR [r15+r14*1+0xf0]
    mov r10d,DWORD PTR [r15+r14*1+0xf8]
    cmp QWORD PTR [rdi+0x70],0x8
    jae 1
3:
    mov QWORD PTR [rsp],rdi
    mov rcx,rbx
    mov r8d,0x8
    xor r9d,r9d
    push 0x8
    mov QWORD PTR [rsp+0x10],r11
    push r11
    push r10
    push rax
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    test r14,r14
    je 14
    mov rdi,QWORD PTR [rsp]
    mov r11,QWORD PTR [rsp+0x8]
    jmp 2
4:
    mov eax,edx
    sub eax,ebp
    cmp eax,0x1
    jne 6
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x10]
    cmp eax,0x1
    jne 7
    cmp DWORD PTR [rdi+0x6c],0x0
    je 5
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 9
5:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 13
6:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 13
7:
    lea r8d,[rax-0x1]
    cmp r8d,DWORD PTR [rdi+0x6c]
    jae 8
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 10
8:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 13
9:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov rax,QWORD PTR [rdi+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rdi+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 12
10:
    mov DWORD PTR [rdi+0x58],esi
    mov DWORD PTR [rdi+0x5c],edx
    mov r8,QWORD PTR [rdi+0x38]
    mov WORD PTR [r8],dx
    mov rdx,QWORD PTR [rdi+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdx,QWORD PTR [rdi+0x20]
    cmp eax,0x2
    jne 11
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdx],xmm0
    movaps XMMWORD PTR [rdx+0x10],xmm1
    movaps XMMWORD PTR [rdx+0x20],xmm2
    movaps XMMWORD PTR [rdx+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdx+0x40],xmm0
    movaps XMMWORD PTR [rdx+0x50],xmm1
    movaps XMMWORD PTR [rdx+0x60],xmm2
    movaps XMMWORD PTR [rdx+0x70],xmm3
    jmp 12
11:
    mov rbx,rdi
    mov rdi,rdx
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rdi,rbx
12:
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
    xor eax,eax
13:
    add rsp,0x18
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
14:
    mov rdi,QWORD PTR [rsp]
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 13
    mov rbx,rax
    mov rdi,QWORD PTR [rsp]
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
