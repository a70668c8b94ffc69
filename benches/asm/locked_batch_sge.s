    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov r8,rcx
    mov r14,rdx
    mov r15,rsi
    mov rbx,rdi
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rdi+0x180],cl
    jne 16
0:
    mov ecx,DWORD PTR [rbx+0x58]
    mov edx,DWORD PTR [rbx+0x5c]
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 1
    lea eax,[rcx-0x1]
    mov DWORD PTR [rbx+0x60],eax
1:
    mov r13d,0x8
    movabs r12,0x800000003
    mov QWORD PTR [rsp+0x10],rcx
    mov esi,ecx
    mov DWORD PTR [rsp+0x4],edx
2:
    mov r10,QWORD PTR [r15+r13*1-0x8]
    mov r11d,DWORD PTR [r15+r13*1]
    mov rax,QWORD PTR [r14+r13*1-0x8]
    mov rbp,QWORD PTR [r14+r13*1]
    lea ecx,[rbp-0x1]
    cmp ecx,DWORD PTR [rbx+0x78]
    jae 4
    cmp DWORD PTR [rbx+0x60],esi
    js 4
    mov ecx,DWORD PTR [rbx+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rbx]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    rol rbp,0x20
    bswap rbp
    bswap rax
    mov QWORD PTR [rcx+0x20],rbp
    mov QWORD PTR [rcx+0x28],rax
    movzx eax,si
    shl rax,0x28
    or rax,r12
    lea rdi,[rax+0x7fffffe]
    add rax,QWORD PTR [rbx+0x50]
    bswap rax
    mov QWORD PTR [rcx],rax
    mov QWORD PTR [rcx+0x8],0x8000000
    mov rax,QWORD PTR [rbx+0x8]
    mov r9d,DWORD PTR [rbx+0x64]
    and r9d,edx
    shl r9,0x4
    mov QWORD PTR [rax+r9*1],r8
    mov QWORD PTR [rax+r9*1+0x8],rdi
    inc esi
    inc edx
    cmp r13,0xf8
    je 5
3:
    add r13,0x10
    inc r8
    jmp 2
4:
    mov rdi,rbx
    mov QWORD PTR [rsp+0x8],r8
    mov rcx,r8
    mov r8d,0x8
    xor r9d,r9d
    push rbp
    push rax
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    cmp r13,0xf8
    je 15
    mov r8,QWORD PTR [rsp+0x8]
    jmp 3
5:
    mov eax,edx
    sub eax,DWORD PTR [rsp+0x4]
    cmp eax,0x1
    jne 7
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x10]
    cmp eax,0x1
    jne 8
    cmp DWORD PTR [rbx+0x6c],0x0
    je 6
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 10
6:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 14
7:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 14
8:
    lea edi,[rax-0x1]
    cmp edi,DWORD PTR [rbx+0x6c]
    jae 9
    mov rdi,QWORD PTR [rbx+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 11
9:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 14
10:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rax,QWORD PTR [rbx+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rbx+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 13
11:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rdi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp eax,0x2
    jne 12
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 13
12:
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
13:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
14:
    mov BYTE PTR [rbx+0x180],0x0
    add rsp,0x18
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
15:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 14
16:
    mov rdi,rbx
    mov r12,r8
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov r8,r12
    jmp 0
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 17
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
    mov r14,rax
17:
    mov BYTE PTR [rbx+0x180],0x0
    mov rdi,r14
    call _Unwind_Resume@plt
