    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r14,r8
    mov rbx,rcx
    mov r15,rdx
    mov r12,rsi
    mov ecx,DWORD PTR [rdi+0x58]
    mov edx,DWORD PTR [rdi+0x5c]
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 0
    lea eax,[rcx-0x1]
    mov DWORD PTR [rdi+0x60],eax
0:
    mov eax,ebx
    or eax,0x80000000
    bswap eax
    mov DWORD PTR [rsp+0xc],eax
    mov rax,rbx
    shr rax,1
    mov QWORD PTR [rsp+0x20],rax
    lea rax,[rbx+0x3]
    shr rax,0x4
    mov QWORD PTR [rsp+0x30],rax
    lea r13d,[rax+0x6]
    shr r13d,0x2
    lea eax,[r13+0x7fffffd]
    mov QWORD PTR [rsp+0x28],rax
    xor ebp,ebp
    mov DWORD PTR [rsp+0x8],edx
    mov QWORD PTR [rsp+0x18],rcx
    mov esi,ecx
    jmp 3
1:
    mov r8d,DWORD PTR [r15]
    mov DWORD PTR [rcx+0x24],r8d
    mov r8d,DWORD PTR [r15+rbx*1-0x4]
    mov DWORD PTR [rcx+rbx*1+0x20],r8d
2:
    movzx r8d,si
    shl r8,0x28
    movabs r9,0x800000003
    or r8,r9
    mov r9,QWORD PTR [rsp+0x28]
    add r9,r8
    mov r10,QWORD PTR [rdi+0x50]
    add r10,QWORD PTR [rsp+0x30]
    add r10,r8
    bswap r10
    mov QWORD PTR [rcx],r10
    mov QWORD PTR [rcx+0x8],0x8000000
    mov r8,QWORD PTR [rdi+0x8]
    mov r10d,DWORD PTR [rdi+0x64]
    and r10d,edx
    shl r10,0x4
    mov QWORD PTR [r8+r10*1],rax
    mov QWORD PTR [r8+r10*1+0x8],r9
    add esi,r13d
    inc edx
    cmp rbp,0x100
    je 7
3:
    mov rax,r14
    inc r14
    mov r10,QWORD PTR [r12+rbp*1]
    mov r11d,DWORD PTR [r12+rbp*1+0x8]
    add rbp,0x10
    lea rcx,[rbx-0x1]
    cmp rcx,QWORD PTR [rdi+0x70]
    jae 6
    cmp DWORD PTR [rdi+0x60],esi
    js 6
    mov ecx,DWORD PTR [rdi+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rdi]
    bswap r10
    bswap r11d
    mov QWORD PTR [rcx+0x10],r10
    mov QWORD PTR [rcx+0x18],r11
    mov r8d,DWORD PTR [rsp+0xc]
    mov DWORD PTR [rcx+0x20],r8d
    cmp rbx,0x7
    jbe 5
    mov r8,QWORD PTR [r15+rbx*1-0x8]
    mov QWORD PTR [rcx+rbx*1+0x1c],r8
    cmp rbx,0x9
    jb 2
    mov r8d,0x8
    xor r9d,r9d
4:
    mov r10,QWORD PTR [r15+r9*1]
    mov QWORD PTR [rcx+r9*1+0x24],r10
    mov r9,r8
    add r8,0x8
    cmp r8,rbx
    jb 4
    jmp 2
5:
    cmp rbx,0x3
    ja 1
    movzx r8d,BYTE PTR [r15]
    mov BYTE PTR [rcx+0x24],r8b
    mov r9,QWORD PTR [rsp+0x20]
    movzx r8d,BYTE PTR [r15+r9*1]
    mov BYTE PTR [rcx+r9*1+0x24],r8b
    lea r9,[rbx-0x1]
    movzx r8d,BYTE PTR [r15+r9*1]
    mov BYTE PTR [rcx+r9*1+0x24],r8b
    jmp 2
6:
    mov QWORD PTR [rsp+0x10],rdi
    mov rcx,rax
    mov r8d,0x8
    xor r9d,r9d
    push rbx
    push r15
    push r11
    push r10
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov esi,eax
    cmp rbp,0x100
    mov rdi,QWORD PTR [rsp+0x10]
    jne 3
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 17
7:
    mov eax,edx
    sub eax,DWORD PTR [rsp+0x8]
    cmp eax,0x1
    jne 9
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x18]
    cmp eax,0x1
    jne 10
    cmp DWORD PTR [rdi+0x6c],0x0
    je 8
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 12
8:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 17
9:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 17
10:
    lea r8d,[rax-0x1]
    cmp r8d,DWORD PTR [rdi+0x6c]
    jae 11
    mov r8,QWORD PTR [rdi+0x10]
    mov r8d,DWORD PTR [r8]
    test r8b,0x1
    jne 13
11:
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 17
12:
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
    jmp 16
13:
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
    je 14
    cmp eax,0x3
    jne 15
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdx],xmm0
    movaps XMMWORD PTR [rdx+0x10],xmm1
    movaps XMMWORD PTR [rdx+0x20],xmm2
    movaps XMMWORD PTR [rdx+0x30],xmm3
    mov rax,QWORD PTR [rdi+0x20]
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rax+0x40],xmm0
    movaps XMMWORD PTR [rax+0x50],xmm1
    movaps XMMWORD PTR [rax+0x60],xmm2
    movaps XMMWORD PTR [rax+0x70],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x80]
    movaps xmm1,XMMWORD PTR [rcx+0x90]
    movaps xmm2,XMMWORD PTR [rcx+0xa0]
    movaps xmm3,XMMWORD PTR [rcx+0xb0]
    movaps XMMWORD PTR [rax+0x80],xmm0
    movaps XMMWORD PTR [rax+0x90],xmm1
    movaps XMMWORD PTR [rax+0xa0],xmm2
    movaps XMMWORD PTR [rax+0xb0],xmm3
    jmp 16
14:
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
    jmp 16
15:
    mov rbx,rdi
    mov rdi,rdx
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
    mov rdi,rbx
16:
    sfence
    mov rax,QWORD PTR [rdi+0x28]
    xor QWORD PTR [rdi+0x20],rax
    xor eax,eax
17:
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
    mov rbx,rax
    mov rdi,QWORD PTR [rsp+0x10]
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,rbx
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
